# A service registration of Consul (the JSON of /v1/agent/service/register) as one of Instar:
#   jq -f registration.jq service.json | curl -s http://127.0.0.1:8080/v1/register -H 'Content-Type: application/json' -d @-
# Takes the first check, and what it names that Instar has. IDs must be DNS labels here.
(.Check // (.Checks // [])[0] // {}) as $check |
{
  serviceName: .Name, instanceId: .ID, nodeAddress: "\(.Address):\(.Port)", tags: .Tags, payload: .Meta,
  version: .Meta.version, zone: .Meta.zone, weight: .Weights.Passing,
  check: ($check | {interval: .Interval, timeout: .Timeout, tlsInsecure: .TLSSkipVerify} +
    if   .TTL  then {type: "ttl", ttl: .TTL}
    elif .HTTP then {type: "http", tls: (.HTTP | startswith("https:")), path: (.HTTP | sub("^[a-z]+://[^/]*"; "")), method: .Method, body: .Body}
    elif .GRPC then {type: "grpc", tls: .GRPCUseTLS, grpcService: (.GRPC | sub("^[^/]*/?"; ""))}
    elif .TCP  then {type: "tcp", tls: .TCPUseTLS}
    elif .UDP  then {type: "udp"}
    elif .Args then {type: "script", command: .Args}
    else {type: "none"} end),
  policy: {rise: $check.SuccessBeforePassing, fall: $check.FailuresBeforeCritical, deregisterCriticalAfter: $check.DeregisterCriticalServiceAfter}
} | del(.. | nulls)
