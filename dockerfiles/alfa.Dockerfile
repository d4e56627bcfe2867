# The machine of InterCode-ALFA's tasks 1 to 4: the packages that its own images have, with what they
# recommend, as commands list and count them. What is missing there is missing here.
ARG BASE=ubuntu:noble-20240429
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -o DPkg::Options::=--force-unsafe-io \
        bash bsdmainutils coreutils cpio cron curl dnsutils git imagemagick iputils-ping jq \
        net-tools psmisc python3 tree \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/*
