import sqlml


def model(dbt, session):
    dbt.config(materialized="table")
    customers = dbt.ref("customers")
    session = sqlml.attach(session)
    session.register("buyers", customers)
    return session.sql("SELECT id, predict('bought', *) AS bought FROM buyers").df()
