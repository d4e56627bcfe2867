# The machine of the ctf environment: what reading, decoding, building and taking apart a puzzle's
# files needs. Chosen by value against size: a compiler, a debugger, solvers and big numbers for
# Python, and readers of the usual file formats are here. Left out, as each would add 65 MB or more:
# optical character recognition, ImageMagick and what needs it, tshark, pwntools, a Java compiler.
# Small enough to be built in under a minute.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
# Tests of Python packages and what gcc needs for -flto would be a quarter of the image. Debian's
# pycryptodome is called Cryptodome, so that its old namesake can be there too; here it is not.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bc bsdextrautils bzip2 ca-certificates cpio curl file git jq less make netbase \
        netcat-openbsd openssl p7zip-full procps psmisc socat sqlite3 unzip wget xxd xz-utils zip \
        binutils gcc gdb-minimal libc6-dev ltrace patchelf strace \
        binwalk fcrackzip foremost john libimage-exiftool-perl pngcheck poppler-utils steghide \
        tcpdump \
        python3 python3-cryptography python3-gmpy2 python3-numpy python3-pil python3-pycryptodome \
        python3-pypdf2 python3-requests python3-scapy python3-sympy python3-z3 \
    && cd /usr/lib/python3/dist-packages \
    && ln -s Cryptodome Crypto \
    && ln -s python3 /usr/bin/python \
    && rm -r sympy/integrals/rubi \
    && find . -name tests -prune -exec rm -r {} + \
    && rm /usr/lib/gcc/*/*/lto1 /usr/bin/*-lto-dump-* \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
