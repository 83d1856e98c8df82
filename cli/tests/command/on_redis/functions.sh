# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2119,SC2120
# For the transcripts that have a Redis.
cp "$ROOT/cli/tests/command/on_redis/weir.yaml" .

redis() { redis-cli -u "$WEIR_REDIS" "$@"; }

# So many requests with these flags: what the filter would send is sent.
requests() {
  local count=$1 commands
  shift
  commands=$(weir explain weir.yaml --commands --redis "$WEIR_REDIS" "$@" | sed -n 's/^  command //p')
  for ((; count > 0; count--)); do echo "$commands"; done | redis >/dev/null
}

# What would become of one more.
next() { weir explain weir.yaml --redis "$WEIR_REDIS" "$@" | sed -n 's/^  \(.* would .*\)/\1/p'; }
