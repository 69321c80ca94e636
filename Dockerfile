# syntax=docker/dockerfile:1
#
# Two images from one build:
#
#   docker build --target operator     --tag sidecarjob-operator:0.1.0 .
#   docker build --target shard-worker --tag sidecarjob-worker:0.1.0 .
#
# The programs link to glibc and libgcc and to nothing else, and check certificates by the system's
# list: what distroless `cc` has, without a shell or a package manager. It adds about 25 MB, the
# programs about as much again.

FROM rust:1.95-bookworm AS build
# aws-lc, the TLS and hashing library, is C.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends cmake \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# Downloads and built dependencies are kept between builds; programs are copied out of the cache.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --bin sidecarjob-operator --bin shard-worker \
 && mkdir /programs \
 && cp target/release/sidecarjob-operator target/release/shard-worker /programs/ \
 && strip /programs/*

FROM gcr.io/distroless/cc-debian12:nonroot AS base
# The number, not the name: Kubernetes can't tell of a name whether it is root.
USER 65532:65532
WORKDIR /

FROM base AS operator
COPY --from=build /programs/sidecarjob-operator /sidecarjob-operator
EXPOSE 8080
ENTRYPOINT ["/sidecarjob-operator"]

FROM base AS shard-worker
COPY --from=build /programs/shard-worker /shard-worker
ENTRYPOINT ["/shard-worker"]
