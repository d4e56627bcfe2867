. /etc/os-release
echo "$ID" > name.txt
