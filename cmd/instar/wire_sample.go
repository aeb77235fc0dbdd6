package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/bcc94042/instar/server/config"
)

// sampleImage is what the sample service of dev runs; none where only a cluster or other workers know what there is.
func (a *app) sampleImage() string {
	switch a.cfg.Gateway {
	case config.GatewayProcess:
		return "hello"
	case config.GatewaySimulated:
		return "sim:ok"
	}
	return ""
}

// suggestions are the commands of the banner that fit the sample, or that there is none.
func (a *app) suggestions() (sample, commands string) {
	self, image := os.Args[0], a.sampleImage()
	if image == "" {
		return "", fmt.Sprintf("  %s service watch\n  %s service create web --image IMAGE\n", self, self)
	}
	return fmt.Sprintf("  Sample         service %q %s\n", sampleID, a.sample), fmt.Sprintf(`  %[1]s service watch
  %[1]s service get %[2]s
  %[1]s service update %[2]s --image %[3]s --env GREETING=Again --wait
  curl -s %[4]s/v1/services/%[2]s
`, self, sampleID, image, a.url)
}

// simulated warns where the usual gateway is not there.
func (a *app) simulated() string {
	if runtime.GOOS == "linux" || a.cfg.Gateway != config.GatewaySimulated {
		return ""
	}
	return "  Services       are simulated: the gateway process needs Linux, and this is " + runtime.GOOS + "\n"
}
