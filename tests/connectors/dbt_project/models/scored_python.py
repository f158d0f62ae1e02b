def model(dbt, session):
    dbt.config(materialized="table")
    dbt.ref("churn")
    customers = dbt.ref("customers")
    session.register("some_customers", customers.filter("id < 50"))
    return session.sql("SELECT id, predict('churn', *) AS churn FROM some_customers")
