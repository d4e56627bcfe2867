# The machine of Aider's polyglot exercises in Rust: Debian's packages alone.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        cargo-web librust-anyhow-dev librust-rand-dev librust-thiserror-dev librust-time-dev rustc-web \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
# There is no network: what Cargo.toml names comes from Debian's crates.
RUN mkdir -p /etc/cargo && printf '%s\n' '[source.crates-io]' 'replace-with = "debian"' \
        '[source.debian]' 'directory = "/usr/share/cargo/registry"' '[net]' 'offline = true' \
        >/etc/cargo/config.toml
ENV CARGO_HOME=/etc/cargo
