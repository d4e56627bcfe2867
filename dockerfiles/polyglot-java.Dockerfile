# The machine of Aider's polyglot exercises in Java: Debian's packages alone.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        junit5 libandroid-json-org-java libassertj-core-java libpicocli-java openjdk-17-jdk-headless \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
