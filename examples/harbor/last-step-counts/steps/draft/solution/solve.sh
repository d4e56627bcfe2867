#!/bin/bash
echo draft > text.txt
