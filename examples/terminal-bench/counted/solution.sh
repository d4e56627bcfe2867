#!/bin/bash
wc -l < words.txt > count.txt
