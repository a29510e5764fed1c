# SPDX-License-Identifier: Apache-2.0
"""Certificates of one test session: an authority of its own, thrown away with the session's folder."""
import base64
import json

from rig.programs import run

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Pki:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(mode=0o700)
        run(["openssl", "req", "-x509", *KEY, "-keyout", self.key("ca"), "-out", self.cert("ca"), "-days", "30",
             "-subj", "/CN=e2e", "-addext", "basicConstraints=critical,CA:TRUE",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign"])  # fmt: skip
        # Service account tokens are signed with a key pair of their own.
        run(["openssl", "genrsa", "-out", self.key("service-accounts"), "2048"])
        run(["openssl", "rsa", "-in", self.key("service-accounts"), "-pubout", "-out", folder / "service-accounts.pub"])

    def cert(self, name):
        return self.folder / f"{name}.crt"

    def key(self, name):
        return self.folder / f"{name}.key"

    def issue(self, name, subject, names=()):
        """A certificate for serving and for calling; `names` are its alternative names ("DNS:…", "IP:…")."""
        extensions = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature"]
        extensions.append("extendedKeyUsage=serverAuth,clientAuth")
        if names:
            extensions.append("subjectAltName=" + ",".join(names))
        request, wanted = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        wanted.write_text("\n".join(extensions) + "\n")
        run(["openssl", "req", "-new", *KEY, "-keyout", self.key(name), "-out", request, "-subj", subject])
        run(["openssl", "x509", "-req", "-in", request, "-CA", self.cert("ca"), "-CAkey", self.key("ca"),
             "-CAcreateserial", "-days", "30", "-extfile", wanted, "-out", self.cert(name)])  # fmt: skip

    def bundle(self):
        """The authority, as a caBundle wants it."""
        return base64.b64encode(self.cert("ca").read_bytes()).decode()

    def kubeconfig(self, name, server):
        """A kubeconfig (JSON is YAML) that calls `server` with the certificate of that name."""
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": server, "certificate-authority": str(self.cert("ca"))}
        user = {"client-certificate": str(self.cert(name)), "client-key": str(self.key(name))}
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
        }, indent=1))  # fmt: skip
        return path
