#!/bin/bash
echo 'Hello, world!' > greeting.txt
