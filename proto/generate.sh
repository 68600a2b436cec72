#!/bin/sh
# Generates the Go code of the services again, and lints their descriptions.
# The plugins' versions are those of the modules in go.mod: generated code checks
# that the library it is linked with is not older than itself.
set -eu

buf_version=v1.66.0
protoc_gen_go_version=v1.36.12
protoc_gen_connect_go_version=v1.21.1

cd "$(dirname "$0")/.."

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

GOBIN=$bin go install "github.com/bufbuild/buf/cmd/buf@$buf_version"
GOBIN=$bin go install "google.golang.org/protobuf/cmd/protoc-gen-go@$protoc_gen_go_version"
GOBIN=$bin go install "connectrpc.com/connect/cmd/protoc-gen-connect-go@$protoc_gen_connect_go_version"

PATH=$bin:$PATH
export PATH
buf format --write
buf lint
buf generate
