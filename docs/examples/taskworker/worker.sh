#!/bin/sh
# A worker of tasks with the nats CLI and jq: worker.sh nats://127.0.0.1:4222. It takes one task and acknowledges it when the result is stored. The task must be done
# within 30 s, or "+WPI" be published to the reply subject in time.
set -eu
nats="nats --server $1"
inbox="_INBOX.taskworker.$$.$(date +%s)"

# The task with its reply subject, which "nats consumer next" does not show.
{ sleep 1; $nats pub '$JS.API.CONSUMER.MSG.NEXT.EFFECTS.fx-task-run' '{"batch":1,"expires":20000000000}' --reply "$inbox" >/dev/null 2>&1; } &
message=$($nats sub "$inbox" --count 1 --wait 30s --dump=- 2>/dev/null | tr -d '\0')
reply=$(echo "$message" | jq -r .Reply)
task=$(echo "$message" | jq -r .Data | base64 -d)
key=$(echo "$task" | jq -r '.namespace + "." + .parent + "." + .id')
attempt=$(echo "$task" | jq -r .attempt)

# Is it still waited for?
if [ "$($nats req "instar.api.get.task.$key" '' --raw 2>/dev/null | jq -r '.effects.run.id')" = "$attempt" ]; then
  result=$(echo "$task" | jq -c '{attempt, data: {worker: "nats CLI", summary: ("hello " + .data.params.name)}}')
  id="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
  $nats req "instar.cmd.task.$key.done" "$result" -H "Nats-Msg-Id:task/$key/$id" --raw 2>/dev/null | jq -e .seq >/dev/null # the stream has stored it
fi
$nats pub "$reply" '' >/dev/null 2>&1
echo "$key done"
