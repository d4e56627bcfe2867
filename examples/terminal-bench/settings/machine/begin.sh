#!/bin/bash
date +%s > /home/maker/begun
exec "$@"
