package platform

import (
	"context"
	"fmt"
	"maps"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/platform/app"
)

// Keys give each release credentials of its own for its tenant's bucket, which has the name that the tenant has here.
type Keys interface {
	// Give is the credentials of a release in the form that tools of S3 read, the same at each call until they are revoked, and the URL at which they hold; empty where there are none to give. It is fenced.
	Give(ctx context.Context, tenant, release, owner string, fence uint64) (credentials, endpoint string, err error)
	// Known are the credentials of all releases of a tenant.
	Known(ctx context.Context, tenant string) ([]string, error)
	// Revoke ends them, if they are of this owner's bucket, and not given by a later task. That there are none is fine.
	Revoke(ctx context.Context, tenant, release, owner string, fence uint64) error
}

// variableKeys is the secret with the credentials for the bucket.
const variableKeys = "AWS_SHARED_CREDENTIALS"

// keyed gives a release its credentials for the bucket, where the server has any to give.
func (j *job) keyed(ctx context.Context, r *app.Release) error {
	if j.body.Storage == nil || j.Keys == nil {
		return nil
	}
	credentials, endpoint, err := j.Keys.Give(ctx, r.Tenant, r.Name, j.owner, j.task.Fence)
	if err != nil || credentials == "" {
		return err
	}
	r.Env["STORAGE_ENDPOINT"] = endpoint
	if r.Secrets = maps.Clone(r.Secrets); r.Secrets == nil {
		r.Secrets = map[string]string{}
	}
	r.Secrets[variableKeys] = credentials
	return nil
}

// remove ends a release, and its credentials when it has gone.
func (j *job) remove(ctx context.Context, r app.Release) error {
	err := j.Apps.Remove(ctx, r)
	if err == nil && j.Keys != nil {
		err = j.Keys.Revoke(ctx, r.Tenant, r.Name, j.owner, j.task.Fence)
	}
	return err
}

// failure is an error as it is told, without the tenant's secrets.
func (j *job) failure(ctx context.Context, err error) *machines.Failure {
	return failure(app.RedactError(err, j.known(ctx, j.body.Request.EnterpriseID, j.body.Name, j.body.Database), nil))
}

// known are the secrets of a tenant that can be read now: what runs its releases gets them with a deploy alone, and may repeat them whatever it is asked afterwards, also by the next server.
func (p *Provider) known(ctx context.Context, enterprise, tenant string, has *database.Allocated) map[string]string {
	all := map[string]string{}
	if p.Secrets != nil {
		of, _ := p.Secrets(enterprise, has)
		maps.Copy(all, of)
	}
	if p.Keys != nil {
		of, _ := p.Keys.Known(context.WithoutCancel(ctx), tenant)
		for i, text := range of {
			all[fmt.Sprint(variableKeys, i)] = text
		}
	}
	return all
}
