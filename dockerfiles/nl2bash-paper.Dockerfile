# The machine of the NL2Bash tasks under the paper profile: the packages of InterCode's image, with
# what they recommend, as actions list and count them. A slim base leaves out documents, and so did
# InterCode's.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -o DPkg::Options::=--force-unsafe-io \
        bsdmainutils coreutils cpio cron curl dnsutils git imagemagick iputils-ping jq net-tools \
        psmisc python3 tree \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/*
