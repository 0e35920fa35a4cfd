"""Verifies evidence as docs/EVIDENCE.md describes it: verify.py DIRECTORY|FILE [KEY]. Says `good N`, `torn N` or `bad SEQ`."""
import hashlib, json, os, re, sys
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # RFC 8032, 5.1
D, I = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)
LINE = re.compile(rb'(\{"seq":(0|[1-9]\d*),"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","kind":"([a-z][a-z0-9._]{0,63})",'
                  rb'"body":(\{[^\0-\x1f]*\}),"prev":"([0-9a-f]{64})"),"hash":"([0-9a-f]{64})"\}')
FIELDS = {"segment.opened": "carried first format key signed state".split(), "checkpoint": "hash key seq signature".split()}
def add(p, q):  # RFC 8032, 5.1.4: points as (X, Y, Z, T)
    a, b, c, d = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0]), 2 * p[3] * q[3] * D, 2 * p[2] * q[2]
    return (b - a) * (d - c) % P, (d + c) * (b + a) % P, (d - c) * (d + c) % P, (b - a) * (b + a) % P
def times(n, p, sum=(0, 1, 1, 0)): return times(n >> 1, add(p, p), add(sum, p) if n & 1 else sum) if n else sum
def point(text):  # RFC 8032, 5.1.3
    y, odd = int.from_bytes(text, "little") & (1 << 255) - 1, text[31] >> 7
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = next(x for x in (pow(xx, (P + 3) // 8, P) * i % P for i in (1, I)) if (x * x - xx) % P == 0)
    return (x if x % 2 == odd else P - x), y, 1, (x if x % 2 == odd else P - x) * y % P
def signed(key, message, text):  # RFC 8032, 5.1.7
    s, h = int.from_bytes(text[32:], "little"), int.from_bytes(hashlib.sha512(text[:32] + key + message).digest(), "little")
    p, q = add(point(text[:32]), times(h % L, point(key))), times(s, point((4 * pow(5, -1, P) % P).to_bytes(32, "little")))
    return s < L and (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0
def plain(pairs): return dict(pairs) if all(a[0].encode() < b[0].encode() for a, b in zip(pairs, pairs[1:])) else {}["order"]
def wrong(path, key, hashes, known=None, last=-1):  # yields, for one thing after the other, whether it is wrong
    folder = os.path.isdir(path)
    files = sorted(n for n in os.listdir(path) if re.fullmatch(r"\d{20}\.jsonl", n)) if folder else [""]
    for name in files:
        text, number = open(os.path.join(path, name) if folder else path, "rb").read(), 0
        at = text.index(b"\n") + 1 if text.startswith(b'{"export":1,') and not folder else 0
        key = key or (json.loads(text[:at])["key"] if at else None)
        yield folder and int(name[:20]) != len(hashes)
        while at < len(text) or not number:
            end, line = text.find(b"\n", at), LINE.fullmatch(text[at:text.find(b"\n", at)])
            lost = (m for m in re.compile(rb"\0{8,}").finditer(text, at) if m.end() // 512 * 512 >= m.start() + 8)
            yield folder and name == files[-1] and number > 0 and (end < 0 or not line and any(lost)) and "torn"
            head, seq, kind, body, before, own = [part.decode() for part in line.groups()]
            yield end < 0 or int(seq) != len(hashes) or own != hashlib.sha256(head.encode() + b"}").hexdigest()
            yield before != (hashes or ["0" * 64])[-1] or (kind == "segment.opened") != (number == 0) and (folder or not hashes)
            body = json.loads(body, object_pairs_hook=plain, parse_constant=int)
            if kind == "segment.opened":
                yield [body[n] for n in FIELDS[kind]][1:5] != [len(hashes), 1, known, last if known else None]
            elif kind == "checkpoint":
                of, trusted, hash = body["seq"], key or known or body["key"], bytes.fromhex(body["hash"])
                yield not last < of < len(hashes) <= of + 65536 or [body["hash"], body["key"]] != [hashes[of], trusted]
                yield not signed(bytes.fromhex(trusted), b"anet-checkpoint-1" + of.to_bytes(8, "big") + hash, bytes.fromhex(body["signature"]))
                known, last = body["key"], of
            yield sorted(body) != FIELDS.get(kind, sorted(body)) or hashes.append(own)
            number, at = number + 1, end + 1
hashes = []
try: found = next(filter(None, wrong(sys.argv[1], (sys.argv[2:] or [None])[0], hashes)), "good")
except Exception: found = True
print("bad" if found is True or not hashes else found, len(hashes))
