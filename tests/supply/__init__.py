"""What we install and ship: lock files, licences, vulnerabilities, the bill of materials."""
