#!/bin/bash
echo final > text.txt
