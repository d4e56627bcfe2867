# The machine of the NL2Bash tasks, with the tools that InterCode's image has and without those
# that it lacks (no ps, sudo, wget, xxd or md5deep): some rewards depend on what is missing.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
# A slim base leaves out documents; InterCode's had them, and tasks that search all of / find them.
RUN rm -f /etc/dpkg/dpkg.cfg.d/docker* \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bsdmainutils bzip2 ca-certificates cpio cron curl dnsutils git iputils-ping jq less \
        net-tools netbase psmisc tree xz-utils \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
