# The coordinator. The federation's folder is a volume: docker run --user $(id -u) -p 9092:9092 -v ./consortium:/federation IMAGE
# (keys are readable by their owner alone)
# Build from the repository's root: docker build -f docs/containers/server.Dockerfile -t fedsac-server .
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir --constraint /src/constraints.txt '/src[flower,parquet]' && rm -rf /src \
 && useradd --create-home --uid 10001 fedsac
USER fedsac
VOLUME /federation
EXPOSE 9092
ENTRYPOINT ["fedsac", "federation"]
CMD ["server", "/federation"]
