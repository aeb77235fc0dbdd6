#!/bin/sh
# A worker of tasks of a pool with the nats CLI and jq, one task at a time: sh worker.sh nats://127.0.0.1:4222 fx-task-run=POOL
set -u
export NATS_URL="$1"
consumer="${2:?the second argument is the consumer of the pool: fx-task-run=POOL}"
beat=
trap '[ -z "$beat" ] || kill "$beat"; exit 0' INT TERM

# waits prints the attempt that the task waits for: it may be canceled, have another one, or be gone. It prints nothing where nobody says so, as while nodes restart.
waits() {
  nats req --raw "instar.api.get.task.$key" '' 2>/dev/null | jq -r 'if .state then .effects.run.id // "none" elif .status == 404 then "gone" else empty end' 2>/dev/null
}

# send stores a result, and tries again until that is stored, or nobody waits for it any more: work that is done has not failed because nodes restart. The id is one that nobody can guess, and
# another one each time.
send() {
  until nats pub --quiet --jetstream --no-templates -H "Nats-Msg-Id:task/$key/$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" "instar.cmd.task.$key.$1" "$2"; do
    case "$(waits)" in "" | "$attempt") sleep 1 ;; *) return ;; esac
  done
}

# perform is the work, which takes as many seconds as the task says. What it prints is the result; with another exit code than 0, the failure.
perform() {
  [ "$(printf %s "$1" | jq -r .data.type)" = greet ] || { echo "no task of this type is done here"; return 1; }
  sleep "$(printf %s "$1" | jq -r '.data.params.seconds // 0')"
  echo "hello $(printf %s "$1" | jq -r .data.params.name)"
}

while :; do
  # The line before the task says where it is in the stream, which is what the subject of its ack is made of.
  got=$(nats consumer next EFFECTS "$consumer" --no-ack --timeout 5s 2>/dev/null) || { sleep 0.2; continue; }
  task=$(printf '%s\n' "$got" | sed -n '/^{/,$p')
  [ -n "$task" ] || continue # there is none: some versions print the status of that, and end with 0
  ack=$(printf '%s\n' "$got" | sed -n "s|.* / tries: \([0-9]*\) / cons seq: \([0-9]*\) / str seq: \([0-9]*\) / .*|\$JS.ACK.EFFECTS.$consumer.\1.\3.\2.0.0|p")
  key=$(printf %s "$task" | jq -r '"\(.namespace).\(.parent).\(.id)"')
  attempt=$(printf %s "$task" | jq -r .attempt)

  waited=$(waits)
  [ -n "$waited" ] || { echo "left for its next delivery: $key" >&2; continue; }
  if [ "$waited" = "$attempt" ]; then
    every=$(nats consumer info --json EFFECTS "$consumer" 2>/dev/null | jq '.config.ack_wait / 3000000000 // empty')
    # Without a sign of life it is given to another one after the ack wait, which is 30 s; so it is when this shell is killed, which its signs do not outlive.
    while sleep "${every:-10}" && kill -0 $$ 2>/dev/null; do nats pub --quiet "$ack" +WPI; done & beat=$!
    if said=$(perform "$task"); then
      result=done form='{attempt: $a, data: {worker: "nats CLI", summary: .}}'
    else
      result=failed form='{effect: "run", attempt: $a, failure: {code: "failed", message: ., retryable: false}}'
    fi
    # Of the text 1,024 bytes are kept, and a program cannot be started with more than 128 KiB.
    body=$(printf %s "$said" | head -c 2048 | jq -Rsc --arg a "$attempt" "$form")
    [ -z "$body" ] || send "$result" "$body"
    kill "$beat"
    beat=
    [ -n "$body" ] || { echo "left for its next delivery: $key" >&2; continue; }
  fi
  nats req --raw "$ack" +ACK >/dev/null
done
