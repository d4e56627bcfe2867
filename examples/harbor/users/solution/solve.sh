#!/bin/bash
[ "$NOTE" = "by the solution" ] && id -un > name.txt
