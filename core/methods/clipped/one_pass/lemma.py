"""Effect of clipping on a random vector: the shift of its mean, and the spread that remains.

For E[X] = x and E|X - x|^alpha at most sigma^alpha, clip(v, lam) = min(1, lam/|v|) v. The mean of clip(X, lam) is
compared with clip(x, lam/2), and the half appears in the comparison only: nothing is ever clipped there.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov (preprint), lemma B.1, (37) and (38). `tight` forms are
ours: they follow from the same proof.
"""

from math import inf

from core.methods.clipped.one_pass.guarantee import Run


def excess_norm(norm: float, clip: float) -> float:
    """Return max(0, |x| - lam/2), the z of the lemma and the zeta of the theorems."""
    return max(0.0, norm - clip / 2)


def moment(norm: float, alpha: float, sigma: float, clip: float) -> float:
    """Return A = sigma^alpha + z^alpha."""
    return float(sigma**alpha + excess_norm(norm, clip) ** alpha)


def bias_bound(norm: float, alpha: float, sigma: float, clip: float, *, tight: bool = False) -> float:
    """Return a bound on |E clip(X, lam) - clip(x, lam/2)|.

    Args:
        norm: |x|.
        alpha: in (1, 2].
        sigma: alpha-th root of the central moment.
        clip: lam.
        tight: ours: c to the power (alpha - 1)/alpha in the first term, |x| for max(|x|, lam/2), the probability
            of being clipped at most 1, and the whole at most 1.5 lam.
    """
    c, A, z = 2.0 ** (2 * alpha - 1), moment(norm, alpha, sigma, clip), excess_norm(norm, clip)
    clipped = c * A / clip**alpha
    if tight:
        clipped = min(1.0, clipped)
        return float(min(sigma * clipped ** ((alpha - 1) / alpha) + norm * clipped + z, 1.5 * clip))
    return float(c * sigma * A ** ((alpha - 1) / alpha) / clip ** (alpha - 1) + max(norm, clip / 2) * clipped + z)


def variance_bound(norm: float, alpha: float, sigma: float, clip: float, *, tight: bool = False) -> float:
    """Return a bound on E |clip(X, lam) - E clip(X, lam)|^2.

    Args:
        norm: |x|.
        alpha: in (1, 2].
        sigma: alpha-th root of the central moment.
        clip: lam.
        tight: ours: at most lam^2.
    """
    bound = 9 / 4 * (2.0 ** (2 * alpha - 1) + 1) * clip ** (2 - alpha) * moment(norm, alpha, sigma, clip)
    return float(min(bound, clip**2 if tight else inf))


def worst_moment(largest: float, run: Run) -> float:
    """Return A where the true gradient is as large as it gets.

    Args:
        largest: its norm there.
        run: of which alpha, sigma and the clip are read.
    """
    return moment(largest, run.alpha, run.sigma, run.clip)


def worst_bias(largest: float, run: Run) -> float:
    """Return B of (65): the lemma's bias where the true gradient is as large as it gets; see `worst_moment`.

    `largest` is at most zeta + lam/2, which is what the theorems put for max(|x|, lam/2).
    """
    c, A, z = run.c, worst_moment(largest, run), excess_norm(largest, run.clip)
    pulled = c * run.sigma * A ** ((run.alpha - 1) / run.alpha) / run.clip ** (run.alpha - 1)
    return float(pulled + (z + run.clip / 2) * c * A / run.clip**run.alpha + z)
