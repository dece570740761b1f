"""Options that are an address to listen at: refused where they stand, on the command line or in a settings file."""

import argparse


def address(text: str) -> str:
    """``HOST:PORT``, as it was written."""
    from perseus_dist.planner.access.address import AddressError, parse_address

    try:
        parse_address(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def host(text: str) -> str:
    """``HOST`` or ``HOST:PORT``, as it was written."""
    from perseus_dist.planner.access.address import AddressError, parse_host

    try:
        parse_host(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
