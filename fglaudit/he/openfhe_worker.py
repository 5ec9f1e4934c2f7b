"""Threshold BFV by OpenFHE, for all parties of a training: run by :mod:`fglaudit.he.openfhe_process` in a Python that
OpenFHE serves, and importing nothing of this package.

Every party holds a share of the secret key; the public key is made of all of them, one party after another. A
ciphertext is opened by partial decryptions, each with one share and flooded with noise, that are then joined.

Requests come on stdin and answers go to stdout: 8 bytes with the length of a JSON header, the header, then the blobs
whose sizes it lists. Whole numbers are int64 in the machine's byte order.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from array import array
from typing import IO, Any

ORDER = 1 << 16
"""The plaintext modulus is 1 modulo this: slots for every ring up to 2^15."""
WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Miller and Rabin's test with these is exact below 2^64."""
ENDS = 1024
"""Bytes at either end of a saved share in which lies what is the same for all."""
Answer = tuple[dict[str, Any], list[bytes]]


def is_prime(number: int) -> bool:
    """Return whether an odd ``number`` below 2^64 is prime."""
    odd, halvings = number - 1, 0
    while odd % 2 == 0:
        odd, halvings = odd // 2, halvings + 1
    for witness in WITNESSES:
        power = pow(witness, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(halvings - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def plaintext_modulus(slot_bits: int) -> int:
    """Return the first prime with room for a slot of ``slot_bits`` bits and a sign."""
    number = (1 << (slot_bits + 2)) + 1
    while not is_prime(number):
        number += ORDER
    return number


class Parties:
    """The parties' key shares, and all that is done with OpenFHE.

    Args:
        parties: how many clients have a share.
        slot_bits: of the numbers in slots.
        additions: how many ciphertexts are added up at most.
    """

    def __init__(self, parties: int, slot_bits: int, additions: int) -> None:
        import openfhe

        self.fhe = openfhe
        parameters = openfhe.CCParamsBFVRNS()
        parameters.SetPlaintextModulus(plaintext_modulus(slot_bits))
        parameters.SetMultiplicativeDepth(0)
        parameters.SetEvalAddCount(additions)
        parameters.SetSecurityLevel(openfhe.SecurityLevel.HEStd_128_classic)
        parameters.SetThresholdNumOfParties(parties)
        parameters.SetMultipartyMode(openfhe.MultipartyMode.NOISE_FLOODING_MULTIPARTY)
        self.context = openfhe.GenCryptoContext(parameters)
        features = openfhe.PKESchemeFeature
        for feature in (features.PKE, features.LEVELEDSHE, features.MULTIPARTY):
            self.context.Enable(feature)
        keys = [self.context.KeyGen()]
        for _ in range(parties - 1):
            keys.append(self.context.MultipartyKeyGen(keys[-1].publicKey))
        self.shares = [pair.secretKey for pair in keys]
        self.public_key = keys[-1].publicKey
        self.degree = int(self.context.GetRingDimension())

    def described(self) -> Answer:
        """Return parameters and sizes, and as blobs what everybody may hold: parameters and the public key."""
        zero = self._encrypted([0] * self.degree)
        share = self.context.MultipartyDecryptLead([zero], self.shares[0])[0]
        modulus = int(self.context.GetModulus())
        header = {
            "degree": self.degree,
            "modulus_bits": modulus.bit_length() - (modulus & (modulus - 1) == 0),
            "plain_modulus": int(self.context.GetPlaintextModulus()),
            "ciphertext": len(self._bytes(zero)),
            "share": len(self._bytes(share)),
        }
        return header, [self._bytes(self.context), self._bytes(self.public_key)]

    def encrypt(self, header: dict[str, Any], blobs: list[bytes]) -> Answer:
        """Return a ciphertext for every ``degree`` numbers of the blob."""
        numbers = array("q", blobs[0]).tolist()
        rows = [numbers[low : low + self.degree] for low in range(0, len(numbers), self.degree)]
        return {}, [self._bytes(self._encrypted(row)) for row in rows]

    def add(self, header: dict[str, Any], blobs: list[bytes]) -> Answer:
        """Return the sum of all ciphertexts; takes no key."""
        total, *others = map(self._ciphertext, blobs)
        for other in others:
            total = self.context.EvalAdd(total, other)
        return {}, [self._bytes(total)]

    def open(self, header: dict[str, Any], blobs: list[bytes]) -> Answer:
        """Return the numbers that the shares of ``holders`` make of the ciphertexts; nonsense unless all are there."""
        ciphertexts = [self._ciphertext(blob) for blob in blobs]
        lead, *others = header["holders"]
        parts = [self.context.MultipartyDecryptLead(ciphertexts, self.shares[lead])]
        parts += [self.context.MultipartyDecryptMain(ciphertexts, self.shares[other]) for other in others]
        found = array("q")
        for joined in zip(*parts, strict=True):
            plaintext = self.context.MultipartyDecryptFusion(list(joined))
            plaintext.SetLength(self.degree)
            found.extend(plaintext.GetPackedValue())
        return {}, [found.tobytes()]

    def secrets(self, header: dict[str, Any], blobs: list[bytes]) -> Answer:
        """Return the shares' coefficients, below 2^60 in words of 8 bytes: for audits alone, which search for them in
        what others see."""
        saved = [self._bytes(share)[ENDS:-ENDS] for share in self.shares]
        starts = [next(at for at in range(8) if max(blob[at + 7 : at + 8000 : 8]) < 16) for blob in saved]
        return {}, [blob[at:] for blob, at in zip(saved, starts, strict=True)]

    def spent(self, header: dict[str, Any], blobs: list[bytes]) -> Answer:
        """Return the processor seconds and the peak memory of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"seconds": used.ru_utime + used.ru_stime, "peak_gb": used.ru_maxrss / 1e6}, []

    def _encrypted(self, numbers: list[int]) -> Any:
        return self.context.Encrypt(self.public_key, self.context.MakePackedPlaintext(numbers))

    def _bytes(self, thing: Any) -> bytes:
        blob: bytes = self.fhe.Serialize(thing, self.fhe.BINARY)
        return blob

    def _ciphertext(self, blob: bytes) -> Any:
        return self.fhe.DeserializeCiphertextString(blob, self.fhe.BINARY)


def read(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the next header and its blobs; None at the end."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    header: dict[str, Any] = json.loads(stream.read(struct.unpack("<Q", head)[0]))
    return header, [stream.read(size) for size in header["sizes"]]


def write(stream: IO[bytes], header: dict[str, Any], blobs: list[bytes]) -> None:
    """Send a header and its blobs."""
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    stream.write(struct.pack("<Q", len(text)) + text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def main() -> None:
    """Answer requests until stdin ends. The first one has the arguments of :class:`Parties`."""
    answers, requests = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)  # what the library prints must not get into answers
    parties: Parties | None = None
    while (request := read(requests)) is not None:
        header, blobs = request
        try:
            if parties is None:
                parties = Parties(header["parties"], header["slot_bits"], header["additions"])
                answer = parties.described()
            else:
                answer = getattr(parties, header["do"])(header, blobs)
        except Exception as error:  # whatever the library raises is the caller's to report
            answer = {"error": f"{type(error).__name__}: {error}"}, []
        write(answers, *answer)


if __name__ == "__main__":
    main()
