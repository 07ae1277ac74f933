# Two stages: packages are installed from the lock in the first, the second has only what runs.
FROM python:3.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /opt/turnwire
COPY requirements/serve.txt requirements/serve.txt
RUN /opt/turnwire/bin/pip install --no-deps --require-hashes --requirement requirements/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY scenarios scenarios
COPY server server
COPY storage storage
RUN /opt/turnwire/bin/pip install --no-deps --no-build-isolation . \
    && /opt/turnwire/bin/pip uninstall --yes editables hatchling pip

FROM python:3.13-slim-bookworm
RUN groupadd --gid 10001 turnwire \
    && useradd --uid 10001 --gid turnwire --no-create-home --home-dir /var/lib/turnwire \
        --shell /usr/sbin/nologin turnwire \
    && install --directory --owner turnwire --group turnwire --mode 0700 /var/lib/turnwire
COPY --from=build /opt/turnwire /opt/turnwire
ENV PATH=/opt/turnwire/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TURNWIRE_HOST=0.0.0.0 \
    TURNWIRE_PORT=8080 \
    TURNWIRE_STATE_DIR=/var/lib/turnwire
USER turnwire
WORKDIR /var/lib/turnwire
VOLUME /var/lib/turnwire
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD [ "python", "-c", \
    "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['TURNWIRE_PORT'] + '/healthz', timeout=2)" ]
# The exec form makes the server process 1, so that SIGTERM reaches it and it can drain.
ENTRYPOINT ["turnwire"]
CMD ["serve"]
