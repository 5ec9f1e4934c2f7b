"""Threshold BFV by OpenFHE: every party holds a share of the secret key, and sums open with all shares alone.

Run by :mod:`bench.threshold_encryption` in a Python that OpenFHE serves; imports nothing of this repository. Prints one
JSON object. Usage: ``python openfhe_sums.py PARTIES NUMBERS BITS``: NUMBERS whole numbers of BITS bits per party.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from typing import Any

SLOT_BITS = 48
ORDER = 1 << 16
"""The plaintext modulus is 1 modulo this: slots for every ring up to 2^15."""
WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Miller and Rabin's test with these is exact below 2^64."""


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


def plaintext_modulus() -> int:
    """Return the first prime with room for a slot and a sign."""
    number = (1 << (SLOT_BITS + 2)) + 1
    while not is_prime(number):
        number += ORDER
    return number


def context(openfhe: Any, parties: int) -> Any:
    """Return a context at 128 bits of security that floods partial decryptions with noise."""
    parameters = openfhe.CCParamsBFVRNS()
    parameters.SetPlaintextModulus(plaintext_modulus())
    parameters.SetMultiplicativeDepth(0)
    parameters.SetEvalAddCount(parties)
    parameters.SetSecurityLevel(openfhe.SecurityLevel.HEStd_128_classic)
    parameters.SetThresholdNumOfParties(parties)
    parameters.SetMultipartyMode(openfhe.MultipartyMode.NOISE_FLOODING_MULTIPARTY)
    found = openfhe.GenCryptoContext(parameters)
    features = openfhe.PKESchemeFeature
    for feature in (features.PKE, features.LEVELEDSHE, features.MULTIPARTY):
        found.Enable(feature)
    return found


def measure(parties: int, numbers: int, bits: int) -> dict[str, Any]:
    """Encrypt, add and open; compare with the plain sums, with all shares and with all but one."""
    import openfhe

    rng, spent = random.Random(0), {}
    cc = context(openfhe, parties)
    slots, fields = cc.GetRingDimension(), SLOT_BITS // bits
    start = time.process_time()
    keys = [cc.KeyGen()]
    for _ in range(parties - 1):
        keys.append(cc.MultipartyKeyGen(keys[-1].publicKey))
    spent["keys"], start = time.process_time() - start, time.process_time()
    count = -(-numbers // (slots * fields))
    largest = (1 << bits) // parties  # so that no field runs over into the next one
    plain = [
        [sum(rng.randrange(largest) << (bits * field) for field in range(fields)) for _ in range(slots)]
        for _ in range(parties)
    ]
    start = time.process_time()
    sent = [[cc.Encrypt(keys[-1].publicKey, cc.MakePackedPlaintext(values)) for _ in range(count)] for values in plain]
    spent["encrypt"], start = time.process_time() - start, time.process_time()
    sums = list(sent[0])
    for other in sent[1:]:
        sums = [cc.EvalAdd(one, two) for one, two in zip(sums, other, strict=True)]
    spent["add"], start = time.process_time() - start, time.process_time()
    shares = [cc.MultipartyDecryptLead(sums, keys[0].secretKey)]
    shares += [cc.MultipartyDecryptMain(sums, key.secretKey) for key in keys[1:]]
    spent["shares"], start = time.process_time() - start, time.process_time()
    opened = [cc.MultipartyDecryptFusion([own[n] for own in shares]) for n in range(count)]
    spent["join"] = time.process_time() - start
    expected, modulus = [sum(values) for values in zip(*plain, strict=True)], cc.GetPlaintextModulus()

    def right(found: Any) -> float:
        read = [value % modulus for value in found.GetPackedValue()]
        return sum(one == two for one, two in zip(read, expected, strict=True)) / slots

    fewer = cc.MultipartyDecryptFusion([own[0] for own in shares[:-1]])
    sizes = {
        "ciphertext": len(openfhe.Serialize(sent[0][0], openfhe.BINARY)),
        "sum": len(openfhe.Serialize(sums[0], openfhe.BINARY)),
        "share": len(openfhe.Serialize(shares[0][0], openfhe.BINARY)),
        "public_key": len(openfhe.Serialize(keys[-1].publicKey, openfhe.BINARY)),
    }
    return {
        "degree": slots,
        "ciphertexts": count,
        "bytes": sizes,
        "seconds": spent,
        "opened_by_all": min(right(found) for found in opened),
        "opened_without_one": right(fewer),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))))
