ln -s release-2 latest
rm -r release-1 release-3
