#!/usr/bin/python3
"""Fits the polynomials of src/base/arithmetic.h and prints their coefficients as float32.

Each is a minimax fit of the relative error by Lawson's iteration (weighted least squares with the weights grown
where the error is largest) in extended precision; coefficients are rounded to float32 from the constant term up and
the rest fitted again, so that later ones absorb the rounding of earlier ones.
"""
import numpy as np

L = np.longdouble


def lawson(t, f, w, degree, fixed):
    """f(t) ~ sum c_i t^i in the weight w (1 / scale of the final result); `fixed` are leading coefficients."""
    k = len(fixed)
    rest = f - sum(L(c) * t**i for i, c in enumerate(fixed))
    basis = np.stack([t**i for i in range(k, degree + 1)], axis=1) * w[:, None]
    target = rest * w
    scale = np.max(np.abs(basis), axis=0)
    u = np.ones(len(t), dtype=L) / len(t)
    best, best_c = None, None
    for _ in range(200):
        s = np.sqrt(u)
        a = (basis / scale * s[:, None]).astype(np.float64)
        b = (target * s).astype(np.float64)
        c = np.linalg.lstsq(a, b, rcond=None)[0].astype(L)
        # one step of refinement in extended precision
        r = target * s - (basis / scale * s[:, None]) @ c
        c = c + np.linalg.lstsq(a, r.astype(np.float64), rcond=None)[0]
        e = np.abs(basis / scale @ c - target)
        if best is None or e.max() < best:
            best, best_c = e.max(), c / scale
        u = u * e
        u /= u.sum()
    return best_c, best


def fit(name, t, f, w, degree):
    fixed = []
    for k in range(degree + 1):
        c, _ = lawson(t, f, w, degree, fixed)
        fixed.append(np.float32(c[0]))
    err = np.max(np.abs((sum(L(c) * t**i for i, c in enumerate(fixed)) - f) * w))
    print(f"{name}: relative error 2^{np.log2(float(err)):.1f}")
    for i, c in enumerate(fixed):
        print(f"  c{i} = {float(c).hex()} = {c:.9g}f")


n = 4001
cheb = np.cos(np.pi * (np.arange(n) + 0.5) / n).astype(L)

# exp(r) = 1 + (r + r^2 P(r)), |r| <= ln2 / 2 and a little
r = cheb * L(0.3470)
fit("exp P(r)", r, (np.expm1(r) - r) / (r * r), (r * r) / np.exp(r), 4)

# tanh(x) = x + x z Q(z), z = x^2 <= 0.625^2
x = (cheb + 1) / 2 * L(0.625) + L(1e-9)
z = x * x
fit("tanh Q(z)", z, (np.tanh(x) / x - 1) / z, z * x / np.tanh(x), 4)

# log1p(e) = S + S z R(z), S = 2e / (2 + e) in (0, 2/3], z = S^2
s = (cheb + 1) / 2 * L(2) / L(3) + L(1e-9)
z = s * s
fit("log1p R(z)", z, (2 * np.arctanh(s / 2) / s - 1) / z, z * s / (2 * np.arctanh(s / 2)), 4)
