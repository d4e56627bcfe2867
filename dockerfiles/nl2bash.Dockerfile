# The machine of the NL2Bash tasks: InterCode's image without Python and ImageMagick, which no task
# needs and which would take four times as long to build. What InterCode's lacks, this lacks too (no
# ps, sudo, wget, xxd or md5deep): some rewards depend on what is missing.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bsdmainutils bzip2 ca-certificates cpio cron curl dnsutils git iputils-ping jq less \
        net-tools netbase psmisc tree xz-utils \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
