package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/consumers/backup"
	"github.com/bcc94042/instar/internal/archive"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

const whereBackups = `A place is a file, a directory that is there or ends with a slash, - (standard input or output), or s3://bucket/key of any store that speaks S3, with the usual AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. A key is taken as it is written. What goes to S3 is a temporary file first, in $TMPDIR or else /tmp.`

// backupCommand copies everything that a server has stored.
func backupCommand(p *command.Program) *cobra.Command {
	cmd := command.ClientFlags(&cobra.Command{
		Use: "backup", Short: "Copy everything that is stored, while the server runs", GroupID: command.GroupServer, Args: command.Arguments(),
		Long: `Copies entities, events, dead letters, answers to keys, commands that wait and the streams of outboxes. Nothing stops meanwhile; everything that was
answered before the backup began is in it. It is read once more as it is written, and kept only if it is complete. It needs the role admin.

The server does not wait long for who does not read: what reads the standard output must take 64 KiB within http.writeTimeout (10s), and no pause of 5s.

` + whereBackups,
		Example: "  instar backup --to /var/backups/instar/\n  instar backup --to s3://backups/instar/\n  instar backup --to - | age -r age1... > instar.backup.age",
		RunE:    p.Asking(runBackup),
	})
	cmd.Flags().String("to", ".", "place for the backup; a directory gets a file with the time in its name")
	cmd.AddCommand(&cobra.Command{
		Use: "verify PLACE", Short: "Verify a backup and describe it", Args: command.Arguments("PLACE"), Long: "Reads a whole backup, verifies its checksums and describes it. No server is needed.\n\n" + whereBackups,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := archive.Open(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer in.Close()
			head, end, err := backup.Check(in)
			if err != nil {
				return err
			}
			tellBackup(p, cmd.OutOrStdout(), head, end)
			return nil
		},
	})
	return cmd
}

func runBackup(s *command.Session, cmd *cobra.Command, _ []string) error {
	to, _ := cmd.Flags().GetString("to") // declared above
	body, err := s.Stream(s.Ctx, client.Request{Path: "/v1/backup"})
	if err != nil {
		return err
	}
	defer body.Close()
	var head backup.Head
	var end backup.End
	name := "instar-" + time.Now().UTC().Format("20060102T150405Z") + ".backup"
	at, err := archive.Keep(s.Ctx, to, name, s.Out, func(w io.Writer) error {
		r, copied := io.Pipe()
		checked := make(chan error, 1)
		go func() {
			var err error
			head, end, err = backup.Check(r)
			r.CloseWithError(err) // else whoever writes would wait
			checked <- err
		}()
		place := &paced{w: w}
		_, err := io.Copy(io.MultiWriter(place, copied), body)
		copied.CloseWithError(err)
		why := <-checked
		switch {
		case place.err != nil: // what was checked ends there, too
			return errors.Join(place.err, place.tooSlow(place.err))
		case why != nil:
			return errors.Join(why, cutOff(err, why), place.tooSlow(err))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("there is no backup: %w", err)
	}
	s.Say("%s", at)
	tellBackup(s.Program, s.Err, head, end)
	if len(end.Missing) > 0 {
		return errors.New("the backup lacks values that the server could not read: instar doctor, and the log, say more")
	}
	return nil
}

// paced notes how long a place took at most for what it was given, and why it takes no more.
type paced struct {
	w     io.Writer
	worst time.Duration
	err   error
}

func (p *paced) Write(b []byte) (int, error) {
	began := time.Now()
	n, err := p.w.Write(b)
	p.worst, p.err = max(p.worst, time.Since(began)), err
	return n, err
}

// tooSlow says why the server may have ended its answer, which the connection does not tell.
func (p *paced) tooSlow(err error) error {
	if err == nil || p.worst < time.Second || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("the place took nothing for %s: the server ends an answer of which 64 KiB are not taken within http.writeTimeout (10s), or a stream for 5s", p.worst.Round(100*time.Millisecond))
}

// cutOff is an error beside another one, unless it says the same.
func cutOff(err, why error) error {
	if errors.Is(err, why) || errors.Is(why, err) {
		return nil
	}
	return err
}

func tellBackup(p *command.Program, w io.Writer, head backup.Head, end backup.End) {
	fmt.Fprintf(w, "contains everything answered before %s, by instar %s\n", head.At.Format(time.RFC3339), head.Version)
	names := streams.Names{Prefix: head.Prefix}
	for _, m := range p.Machines {
		if n, ok := end.Entities[streams.BucketStream(names.Bucket(m.Plural))]; ok {
			fmt.Fprintf(w, "%s: %d\n", m.Plural, n)
		}
	}
	fmt.Fprintf(w, "%d messages in all\n", end.Stored())
	if len(end.Readers) > 0 {
		fmt.Fprintf(w, "not included: durable consumers on the readers' copies: %s\n", strings.Join(end.Readers, ", "))
	}
	for _, o := range end.Others {
		if o.Memory {
			fmt.Fprintf(w, "%s: a stream in memory; a restore into a data directory leaves it out\n", o.Stream)
		}
		if len(o.Origins) > 0 {
			fmt.Fprintf(w, "%s: mirrors or sources %s; a restored stream keeps its messages and receives no more of them (see the manual, Backup)\n", o.Stream, strings.Join(o.Origins, ", "))
		}
	}
	for stream, n := range end.Missing {
		fmt.Fprintf(w, "%s: %d values could not be read by the server and are not included\n", stream, n)
	}
}

// restoreCommand makes an installation of a backup.
func restoreCommand(p *command.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore [PLACE]", Short: "Restore a backup", GroupID: command.GroupServer, Args: command.Between(0, "PLACE"),
		Long: `Fills an empty data directory, or an empty account of the NATS server at --nats-url, from a backup. It takes the flags and the configuration of instar serve,
which is started when it has ended, by the same user: it says which data directory it filled. What a restore that did not end has left is refused by every server.

Versions, revisions and sequences go on above all that may have been given out since the backup, so that no id comes twice. What services, instances and
databases have become meanwhile is found out by looking at them.

In a cluster it runs on all members at once, with the place at one of them, and ends on all when that has restored.

` + whereBackups,
		Example: "  instar restore /var/backups/instar/instar-20260101T000000Z.backup --data /var/lib/instar\n  runuser -u instar -- instar restore s3://backups/instar/last --config /etc/instar/instar.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(config.Serve, cmd.Flags(), os.Environ())
			if err != nil {
				return command.Usage(err)
			}
			if len(args) == 0 && !cfg.Cluster.On() {
				return command.Usagef("PLACE is missing")
			}
			without, _ := cmd.Flags().GetStringSlice("without") // declared below
			return runRestore(p, cmd, cfg, append(args, "")[0], without)
		},
	}
	config.Flags(cmd.Flags(), config.Serve)
	cmd.Flags().StringSlice("without", nil, "streams beside those of Instar to leave out, with commas between them")
	return cmd
}

func runRestore(p *command.Program, cmd *cobra.Command, cfg config.Config, place string, without []string) error {
	out := cmd.OutOrStdout()
	r := server.Restoration{Without: without}
	if place != "" {
		in, err := archive.Open(cmd.Context(), place, cmd.InOrStdin())
		if err != nil {
			return err
		}
		defer in.Close()
		r.From = in
	}
	r.Tell = func(done backup.Restored, filled, full string) error {
		tellRestored(p, out, done)
		if full != "" {
			fmt.Fprintln(out, full)
		}
		fmt.Fprintf(out, "filled: %s\n", filled) // another place than that of the server would do no good
		dir, err := filepath.Abs(cfg.Data)
		if err != nil {
			return fmt.Errorf("cannot tell the data directory: %w", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "process")); cfg.Gateway == config.GatewayProcess && errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(out, "%s has no directory process: to adopt programs that still run on this machine, copy process and sites of the former data directory there before the start\n", dir)
		}
		return nil
	}
	err := server.Restore(cmd.Context(), cfg, p.Options, r)
	if cmd.Context().Err() != nil && errors.Is(err, streams.ErrUnfinished) {
		return &command.Error{Code: command.ExitInterrupted, Err: err} // it is to be told nevertheless
	}
	return err
}

func tellRestored(p *command.Program, out io.Writer, done backup.Restored) {
	tellBackup(p, out, done.Head, done.End)
	fmt.Fprintf(out, "restored: %d entities, %d events, %d pending commands; created: %d timers, %d tasks\n", done.Entities, done.Events, done.Commands, done.Timers, done.Tasks)
	if done.Gone > 0 {
		fmt.Fprintf(out, "the %d oldest events were dropped again: EVENTS is too small for all of them (store.events, or half of store.max)\n", done.Gone)
	}
	if done.Newer > 0 {
		fmt.Fprintf(out, "left out: %d events that are newer than the values of their entities\n", done.Newer)
	}
	if done.Parked > 0 {
		fmt.Fprintf(out, "%d values cannot be read by this version; their entities are parked (instar entity repair)\n", done.Parked)
	}
	if done.Consumers > 0 {
		fmt.Fprintf(out, "%d durable consumers could not be created; see the log\n", done.Consumers)
	}
	fmt.Fprintf(out, "versions and revisions continue above %d\n", done.Above)
}
