#!/bin/sh
# Makes the cluster, its user and its database at the first start, as the ordinary image does; then becomes the server.
set -eu
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    chmod 0700 "$PGDATA"
    # shellcheck disable=SC2086 # several arguments are meant
    initdb --pgdata "$PGDATA" --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" ${POSTGRES_INITDB_ARGS:-}
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    pg_ctl --pgdata "$PGDATA" --wait --options "-c listen_addresses=''" start
    psql --username "$POSTGRES_USER" --dbname postgres --command "CREATE DATABASE \"$POSTGRES_DB\""
    pg_ctl --pgdata "$PGDATA" --wait --mode fast stop
fi
[ "$1" != postgres ] || set -- "$@" -c "listen_addresses=*"
exec "$@"
