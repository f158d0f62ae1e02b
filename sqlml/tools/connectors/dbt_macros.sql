{# Made by `sqlml dbt`, which writes it anew: models as models of dbt. docs/dbt.md explains it. #}

{#
  A machine-learning model. The dbt file contains the rest of CREATE MODEL, after the model's name,
  or if ml_config is set, the query to train on:

    {{ config(materialized='ml_model', ml_config={'model_type': 'logistic_reg', 'label': 'churned'}) }}
    SELECT * FROM {{ ref('customers') }}

  By default, an existing model is replaced. With if_exists='keep', only --full-refresh replaces it.
  ref(...) of the model is a view that contains the model's row of sqlml.models.
#}
{% materialization ml_model, adapter='duckdb' %}
  {%- set if_exists = config.get('if_exists', 'replace') -%}
  {%- if if_exists not in ('keep', 'replace') -%}
    {{ exceptions.raise_compiler_error("if_exists must be 'keep' or 'replace', not " ~ if_exists) }}
  {%- endif -%}
  {%- if not config.get('ml_config') and not modules.re.match('(?i)\\s*(FROM|INPUT|OUTPUT|TRANSFORM|OPTIONS|AS)\\b', sql) -%}
    {{ exceptions.raise_compiler_error("a query to train on needs ml_config={'model_type': .., 'label': ..}") }}
  {%- endif -%}
  {%- set kept = if_exists == 'keep' and not should_full_refresh() -%}
  {%- set head = 'MODEL IF NOT EXISTS' if kept else 'OR REPLACE MODEL' -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% if existing is not none and not existing.is_view %}{{ drop_relation_if_exists(existing) }}{% endif %}
  {% call statement('main') -%}
    CREATE {{ head }} {{ ml_quoted(this) }}
    {% if config.get('ml_config') %}{{ ml_options(config.get('ml_config')) }} AS {% endif %}{{ sql }}
  {%- endcall %}
  {% call statement('shown') -%}
    CREATE OR REPLACE VIEW {{ target_relation }} AS
    SELECT * FROM {{ adapter.quote(this.database) }}.sqlml.models
    WHERE name = {{ ml_value(this.identifier) }}
  {%- endcall %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{# The name of a model as an argument: predict({{ ml_model(ref('churn')) }}, *) #}
{% macro ml_model(model) -%}
  {%- set other = model.database and model.database != target.database -%}
  '{{ (model.database ~ '.' if other else '') ~ model.identifier }}'
{%- endmacro %}

{# The name of a model in a statement. #}
{% macro ml_quoted(model) -%}
  {%- set other = model.database and model.database != target.database -%}
  {{ (adapter.quote(model.database) ~ '.' if other else '') ~ adapter.quote(model.identifier) }}
{%- endmacro %}

{# Format a mapping as OPTIONS (name = value, ...). #}
{% macro ml_options(options) -%}
  OPTIONS (
  {%- for name, value in options.items() -%}
    {{ ', ' if not loop.first }}{{ name }} = {{ ml_value(value) }}
  {%- endfor -%}
  )
{%- endmacro %}

{# Format a value as a SQL literal. #}
{% macro ml_value(value) -%}
  {%- if value is none -%} NULL
  {%- elif value is boolean -%} {{ 'true' if value else 'false' }}
  {%- elif value is number -%} {{ value }}
  {%- elif value is string -%} '{{ value | replace("'", "''") }}'
  {%- elif value is mapping -%} { {%- for k, v in value.items() -%}
    {{ ', ' if not loop.first }}'{{ k }}': {{ ml_value(v) }}
  {%- endfor -%} }
  {%- else -%} [{%- for v in value -%}{{ ', ' if not loop.first }}{{ ml_value(v) }}{%- endfor -%}]
  {%- endif -%}
{%- endmacro %}
