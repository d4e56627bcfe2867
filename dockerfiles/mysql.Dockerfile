# A database server with the databases of a suite in it. The base may be Debian, which gets MySQL,
# or one that has MySQL or MariaDB: mysql:8.4, mariadb:11.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
ENTRYPOINT []
CMD ["bash"]
COPY mysql/install.sh /opt/intercode/
RUN bash /opt/intercode/install.sh
COPY mysql/ /opt/intercode/
# The suite's scripts, numbered in their order.
COPY scripts/ /opt/scripts/
RUN bash /opt/intercode/load.sh
