# Makes a repository with a history: sh -c origin.sh DIRECTORY NAME COMMITS
set -e; mkdir -p "$0"; cd "$0"; git init -q -b main; mkdir store
printf 'module example.com/%s\n\ngo 1.26\n\nrequire github.com/google/uuid v1.6.0\n' "$1" > go.mod
printf 'package main\n\nimport "example.com/%s/store"\n\n// main begins.\nfunc main() { store.Open() }\n' "$1" > main.go
printf '{"lockfileVersion":3,"packages":{"node_modules/left-pad":{"version":"1.3.0"}}}' > package-lock.json
printf 'package store\n\n// Open is of change 1.\nfunc Open() int { return 1 }\n' > store/store.go; git add .; git -c user.name=demo -c user.email=demo@example.com -c commit.gpgsign=false commit -qm "begin"
from="from refs/heads/main^0"; i=1; while [ $i -lt "$2" ]; do i=$((i+1))
printf 'commit refs/heads/main\ncommitter demo <demo@example.com> now\ndata <<E\nchange %s\nE\n%s\nM 100644 inline store/store.go\ndata <<E\npackage store\n\n// Open is of change %s.\nfunc Open() int { return %s }\nE\n' $i "$from" $i $i
from=; done | git fast-import --quiet --date-format=now; git reset -q --hard
