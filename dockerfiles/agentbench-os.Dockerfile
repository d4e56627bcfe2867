# The machine of AgentBench's operating-system tasks: its image `default`, which is Ubuntu's newest there, on Debian.
# Some tasks install packages, and sandboxes have no network: apt finds these packages in /srv/packages.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates curl git procps python3 python3-pip tree unzip vim wget zip \
    && rm -f /etc/apt/apt.conf.d/docker-clean && mkdir -p /srv/packages \
    && apt-get install -y --no-install-recommends --download-only \
        -o Dir::Cache::archives=/srv/packages iproute2 lsof net-tools sudo \
    && cd /srv/packages && rm -rf lock partial && for file in *.deb; do \
        dpkg-deb --field "$file" && echo "Filename: ./$file" && echo "Size: $(stat --format=%s "$file")" \
        && echo "SHA256: $(sha256sum <"$file" | cut -d' ' -f1)" && echo || exit; \
    done >Packages \
    && rm -rf /etc/apt/sources.list.d/* /etc/apt/sources.list \
    && echo 'deb [trusted=yes] file:/srv/packages ./' >/etc/apt/sources.list \
    && rm -rf /var/lib/apt/lists/* && apt-get update \
    && rm -rf /var/cache/apt/* /var/log/*.log /var/log/apt
