"""Parameters, keys and who holds them.

The clients share one secret key (:class:`ClientKeys`) and encrypt with it: a ciphertext made with the secret key
travels as one polynomial and the seed of the other, half of what public-key encryption sends. The server
(:class:`PublicContext`) is built from :meth:`ClientKeys.public_bytes` alone, which are the parameters and no key at
all: adding ciphertexts and multiplying them by public numbers takes none.

Security: a set of parameters passes only if all its primes together, the special one among them, stay within the bits
that the homomorphic encryption standard (Albrecht et al. 2018, table 1, ternary secret) allows at 128 bits of security.
SEAL takes the encryption's randomness from the operating system, never from a seed: the same run gives other
ciphertexts every time.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from fglaudit.errors import FglauditError

MOST_BITS = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438}
"""By polynomial degree, the bits of all primes together at 128 bits of security."""


@cache
def seal() -> Any:
    """Return TenSEAL's bindings of SEAL.

    Raises:
        FglauditError: if TenSEAL is not installed.
    """
    try:
        import tenseal.sealapi
    except ImportError as error:
        raise FglauditError(
            f"homomorphic encryption needs TenSEAL; got {error}; install it with the extra `he`: pip install"
            " 'fglaudit[he]'"
        ) from error
    return tenseal.sealapi


def to_bytes(thing: Any) -> bytes:
    """Serialise a SEAL object; the bindings write to files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seal"
        thing.save(str(path))
        return path.read_bytes()


def from_bytes(thing: Any, blob: bytes, *context: Any) -> Any:
    """Return ``thing``, an empty object of the library, with what :func:`to_bytes` made of another one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seal"
        path.write_bytes(blob)
        thing.load(*context, str(path))
    return thing


@dataclass(frozen=True)
class Parameters:
    """Of one scheme.

    Attributes:
        scheme: "bfv" (whole numbers, exact) or "ckks" (real numbers, approximate).
        degree: of the polynomials, N: ciphertexts have N slots (bfv) or N / 2 (ckks).
        prime_bits: sizes of the coefficient primes; the last one is SEAL's special prime, which no ciphertext uses.
        fresh_bytes: counted for a ciphertext as a client sends it, one polynomial and a seed. SEAL compresses the zero
            bits above its primes, so that sizes differ by up to 2 %; counted is the mean, rounded up.
        full_bytes: counted for any other ciphertext.
        plain_bits: size of the prime modulo which slots are counted; bfv alone.
    """

    scheme: str
    degree: int
    prime_bits: tuple[int, ...]
    fresh_bytes: int
    full_bytes: int
    plain_bits: int = 0

    def __post_init__(self) -> None:
        if self.degree not in MOST_BITS:
            raise FglauditError(
                f"the polynomial degree must be one of {sorted(MOST_BITS)}; got {self.degree}; use e.g. 8192"
            )
        total, most = sum(self.prime_bits), MOST_BITS[self.degree]
        if total > most:
            enough = [degree for degree, bits in MOST_BITS.items() if bits >= total]
            fix = f"use a degree of {min(enough)}" if enough else "use fewer or smaller primes"
            raise FglauditError(
                f"128 bits of security at polynomial degree {self.degree} allow primes of {most} bits in all, the"
                f" special prime counted; got {total} bits {list(self.prime_bits)}; {fix}"
            )

    @property
    def slots(self) -> int:
        """Numbers in one ciphertext."""
        return self.degree if self.scheme == "bfv" else self.degree // 2


class PublicContext:
    """What everybody may hold: enough to add ciphertexts and to multiply them by public numbers, not to read them.

    Args:
        blob: serialised parameters, as :meth:`ClientKeys.public_bytes` returns them.

    Attributes:
        context: SEAL's context.
        evaluator: computes on ciphertexts.
        encoder: turns numbers into plaintexts: ``BatchEncoder`` or ``CKKSEncoder``.
    """

    def __init__(self, blob: bytes) -> None:
        api = seal()
        parameters = from_bytes(api.EncryptionParameters(api.SCHEME_TYPE.NONE), blob)
        self.context = api.SEALContext(parameters, True, api.SEC_LEVEL_TYPE.TC128)
        if not self.context.parameters_set():
            raise FglauditError(
                "SEAL accepts only parameters of 128 bits of security; it says"
                f" {self.context.parameters_error_message()}; use the parameters of this version"
            )
        self.evaluator = api.Evaluator(self.context)
        batching = parameters.scheme() == api.SCHEME_TYPE.BFV
        self.encoder = (api.BatchEncoder if batching else api.CKKSEncoder)(self.context)
        self.plain_modulus = int(parameters.plain_modulus().value()) if batching else 0

    def ciphertext(self, blob: bytes) -> Any:
        """Read a ciphertext from its bytes."""
        return from_bytes(seal().Ciphertext(), blob, self.context)


_DRAWN: WeakKeyDictionary[ClientKeys, tuple[object, ...]] = WeakKeyDictionary()
"""Keys as they were drawn, and what was made with them."""


class ClientKeys:
    """What every client holds and the server does not: the secret key.

    Args:
        parameters: of the scheme.
    """

    def __init__(self, parameters: Parameters) -> None:
        api = seal()
        self.parameters = parameters
        chosen = api.EncryptionParameters(api.SCHEME_TYPE.BFV if parameters.scheme == "bfv" else api.SCHEME_TYPE.CKKS)
        chosen.set_poly_modulus_degree(parameters.degree)
        chosen.set_coeff_modulus(api.CoeffModulus.Create(parameters.degree, list(parameters.prime_bits)))
        if parameters.scheme == "bfv":
            chosen.set_plain_modulus(api.PlainModulus.Batching(parameters.degree, parameters.plain_bits))
        self._public = to_bytes(chosen)
        self.public = PublicContext(self._public)
        self._secret_key = api.KeyGenerator(self.public.context).secret_key()
        self._encryptor = api.Encryptor(self.public.context, self._secret_key)
        self._decryptor = api.Decryptor(self.public.context, self._secret_key)
        _DRAWN[self] = self._secret_key, self._encryptor, self._decryptor

    def own_keys(self) -> bool:
        """Whether the key is still the one that SEAL drew here: for audits alone."""
        keys = self._secret_key, self._encryptor, self._decryptor
        return all(key is drawn for key, drawn in zip(keys, _DRAWN.get(self, (None,) * 3), strict=True))

    def public_bytes(self) -> bytes:
        """Return what is shipped to the server: the parameters, no key."""
        return self._public

    def key_material(self) -> tuple[bytes, tuple[int, ...]]:
        """Return the secret key as it is saved, and the first of its 64-bit words: for audits alone, which search for
        it in what others see."""
        words = self._secret_key.data()
        return to_bytes(self._secret_key), tuple(int(words.data(i)) for i in range(min(4096, words.coeff_count())))

    def encrypt(self, plaintext: Any) -> Any:
        """Return a fresh ciphertext of ``plaintext``."""
        ciphertext = seal().Ciphertext()
        self._encryptor.encrypt_symmetric(plaintext, ciphertext)
        return ciphertext

    def encrypted_bytes(self, plaintext: Any) -> bytes:
        """Return a fresh ciphertext as a client sends it: one polynomial and the seed of the other."""
        return to_bytes(self._encryptor.encrypt_symmetric(plaintext))

    def decrypt(self, ciphertext: Any) -> Any:
        """Return the plaintext of ``ciphertext``, for key holders alone: the noise in CKKS plaintexts leaks the key."""
        plaintext = seal().Plaintext()
        self._decryptor.decrypt(ciphertext, plaintext)
        return plaintext

    def noise_budget(self, ciphertext: Any) -> int:
        """Return the bits of noise that a bfv ``ciphertext`` can still take; 0: it decrypts to nonsense, or may."""
        return int(self._decryptor.invariant_noise_budget(ciphertext))
