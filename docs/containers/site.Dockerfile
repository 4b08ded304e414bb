# A site. Its folder, with key and data, is a volume: docker run --user $(id -u) -v ./north:/site IMAGE
# (the key is readable by its owner alone)
# Build from the repository's root: docker build -f docs/containers/site.Dockerfile -t fedsac-site .
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir --constraint /src/constraints.txt '/src[flower,parquet]' && rm -rf /src \
 && useradd --create-home --uid 10001 fedsac
USER fedsac
VOLUME /site
ENTRYPOINT ["fedsac", "federation"]
CMD ["site", "/site"]
