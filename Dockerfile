# The operator, and nothing else: one static program on an empty image.
#
#   docker build --tag evac:0.1.0 .

FROM rust:1-alpine AS build
RUN apk add --no-cache musl-dev
WORKDIR /src
COPY . .
# On this system programs are linked statically by default.
RUN cargo build --release --locked --package evac --bin evac

FROM scratch
COPY --from=build /src/target/release/evac /evac
# Nobody in particular; the Deployment says the same.
USER 65532:65532
ENTRYPOINT ["/evac"]
