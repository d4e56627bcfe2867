# The machine of InterCode-ALFA's tasks 5: Alpine, whose commands are busybox's, with git. bash reads
# the actions of every sandbox, setpriv starts it, and grading lists files with GNU's find where it
# cannot read the layers from outside. A base that has all of them needs no apk.
ARG BASE=alpine:3.20.0
FROM ${BASE}
RUN bash -c 'git --version && setpriv --version && find --version' >/dev/null 2>&1 \
    || apk add --no-cache bash findutils git setpriv
