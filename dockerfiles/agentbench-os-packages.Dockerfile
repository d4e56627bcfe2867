# The machine of AgentBench's operating-system tasks that are about npm: its image `packages`, on Debian.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates curl git npm procps python3 python3-pip tree unzip vim wget zip \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
