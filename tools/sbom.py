#!/usr/bin/env python3
"""Writes a bill of materials of a release's files as SPDX 2.3: sbom.py VERSION FOLDER PACKAGE...

PACKAGE are the Debian packages whose code the programs carry; their versions are those of this
system, their licences those of docs/dependencies.md. FOLDER holds the files, and gets
sbom.spdx.json.
"""
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys

LICENCES = {"libfmt-dev": "MIT", "libpcre2-dev": "BSD-3-Clause", "libutf8proc-dev": "MIT",
            "libjpeg-dev": "IJG AND BSD-3-Clause", "libpng-dev": "libpng-2.0",
            "libwebp-dev": "BSD-3-Clause", "zlib1g-dev": "Zlib",
            "libxxhash-dev": "BSD-2-Clause", "libedit-dev": "BSD-3-Clause",
            "libncurses-dev": "X11", "libbsd-dev": "BSD-3-Clause", "libmd-dev": "BSD-3-Clause",
            "nlohmann-json3-dev": "MIT", "libcli11-dev": "BSD-3-Clause",
            "libboost1.81-dev": "BSL-1.0", "libboost-dev": "BSL-1.0",
            "libstdc++-dev": "GPL-3.0-or-later WITH GCC-exception-3.1"}


def version_of(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"sbom: {package}: {done.stderr.strip()}")
    return done.stdout


def entry(name, version, licence):
    return {"SPDXID": "SPDXRef-" + "".join(c if c.isalnum() else "-" for c in name),
            "name": name, "versionInfo": version, "licenseConcluded": licence,
            "licenseDeclared": licence, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "copyrightText": "NOASSERTION"}


def main():
    version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    files = sorted(f for f in folder.iterdir() if f.suffix in (".deb", ".gz", ".whl"))
    digests = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    packages = [entry("walsh", version, "MIT")]
    for name, digest in digests.items():
        packages.append({**entry(name, version, "MIT"),
                         "checksums": [{"algorithm": "SHA256", "checksumValue": digest}]})
    parts = [entry(p, version_of(p), LICENCES[p]) for p in sys.argv[3:]]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                  "relatedSpdxElement": p["SPDXID"]} for p in packages]
    relations += [{"spdxElementId": "SPDXRef-walsh", "relationshipType": "CONTAINS",
                   "relatedSpdxElement": p["SPDXID"]} for p in parts]
    # The same commit gives the same file: the date is the commit's.
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")),
                                           datetime.timezone.utc)
    whole = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
                "name": f"walsh-{version}",
                "documentNamespace": f"urn:sha256:{whole}",
                "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
                                 "creators": ["Tool: walsh/tools/sbom.py"]},
                "packages": packages + parts, "relationships": relations}
    (folder / "sbom.spdx.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
