"""Our integer-order prices against dp-accounting: equal to its Renyi ones, above its privacy loss distributions."""

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.rdp import RdpAccountant

from core.privacy.conversions import cks_epsilon, gdp_epsilon, renyi_epsilon
from core.privacy.events import Event, Gaussian, Repeated, Sampled, Zcdp
from core.privacy.renyi import cost
from core.privacy.reports import epsilon_at

ONE = 2**64
ORDERS = [2, 3, 4, 5, 7, 9, 16, 18, 22, 44]


def theirs(event: dp_event.DpEvent, times: int) -> list[float]:
    return list(RdpAccountant(orders=ORDERS).compose(event, times)._rdp)


@pytest.mark.parametrize("times", [1, 37, 5000])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0, 50.0])
def test_gaussian(sigma: float, times: int) -> None:
    ours = [cost(Repeated(event=Gaussian(sigma=sigma), times=times), order) for order in ORDERS]
    assert ours == pytest.approx(theirs(dp_event.GaussianDpEvent(sigma), times), rel=1e-12)


@pytest.mark.parametrize("times", [1, 500])
@pytest.mark.parametrize("sigma", [0.7, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("rate", [2.0**-10, 0.01, 0.1, 0.5])
def test_poisson(rate: float, sigma: float, times: int) -> None:
    event = Repeated(event=Sampled(numerator=round(rate * ONE), sigma=sigma), times=times)
    sampled = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    assert [cost(event, order) for order in ORDERS] == pytest.approx(theirs(sampled, times), rel=1e-12)


def test_zcdp() -> None:
    assert [cost(Zcdp(rho=0.3), order) for order in ORDERS] == pytest.approx(theirs(dp_event.ZCDpEvent(0.3), 1))


def test_a_factor_of_two_in_the_rate_is_seen() -> None:
    """The comparison can fail: a Poisson rate half of what was drawn gives a plainly lower price."""
    wrong = Sampled(numerator=round(0.005 * ONE), sigma=1.0)
    truth = theirs(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 1)
    assert all(cost(wrong, order) < 0.99 * price for order, price in zip(ORDERS, truth, strict=True))


@pytest.mark.parametrize(
    ("event", "loss"),
    [
        (Gaussian(sigma=2.0), losses.from_gaussian_mechanism(2.0)),
        (
            Repeated(event=Sampled(numerator=round(0.01 * ONE), sigma=1.0), times=500),
            losses.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(500),
        ),
    ],
    ids=["gaussian", "sampled"],
)
def test_renyi_epsilon_lies_above_the_loss_distribution(event: Event, loss: losses.PrivacyLossDistribution) -> None:
    tight = loss.get_epsilon_for_delta(1e-6)
    by_renyi = min(renyi_epsilon(cost(event, order), order, 1e-6) for order in range(2, 200))
    assert tight <= by_renyi <= 1.4 * tight
    assert epsilon_at(event, 1e-6)[0] == pytest.approx(tight, rel=1e-3)


def test_exact_gaussian_and_zcdp_against_theirs() -> None:
    loss = losses.from_gaussian_mechanism(1.0)
    assert gdp_epsilon(1.0, 1e-6) == pytest.approx(loss.get_epsilon_for_delta(1e-6), rel=1e-3)
    assert gdp_epsilon(1.0, 1e-6) <= loss.get_epsilon_for_delta(1e-6)  # theirs is pessimistic
    accountant = RdpAccountant(orders=[1 + k / 100 for k in range(1, 3000)]).compose(dp_event.ZCDpEvent(0.5))
    assert cks_epsilon(0.5, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


def test_sampling_only_helps() -> None:
    ten = Repeated(event=Sampled(numerator=ONE // 4, sigma=2.0), times=10)
    epsilon, method = epsilon_at(ten, 1e-6)
    assert method == "privacy loss distribution"
    assert 0 < epsilon < gdp_epsilon(10**0.5 / 2, 1e-6)  # sampling can only help
