# The machine of the bash environment: a small Debian with the tools that an engineer expects.
# Small enough to be built in under a minute.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bc bsdextrautils bzip2 ca-certificates cpio curl diffutils file git jq less make ncal \
        netbase patch procps psmisc python3 rsync sqlite3 tree unzip xxd xz-utils zip \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
