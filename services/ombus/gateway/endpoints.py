"""One path with several methods, as the framework wants it."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Endpoint


def merged(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Return the routes such that one path with several methods answers 405 to others only."""
    by_path: Mapping[str, set[str]] = {each.path: set() for each in endpoints}
    for each in endpoints:
        by_path[each.path].update(each.methods or ())
    found: list[Endpoint] = []
    for path, methods in by_path.items():
        same = [each for each in endpoints if each.path == path]
        if len(same) == 1:
            found += same
            continue
        found.append(Endpoint(path, _by_method(same), methods=sorted(methods - {"HEAD"})))
    return found


def _by_method(endpoints: list[Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    by_method = {name: each.endpoint for each in endpoints for name in each.methods or ()}

    async def endpoint(request: Request) -> Response:
        response: Response = await by_method[request.method](request)
        return response

    return endpoint
