"""The staging table that Spark fills, and what the database itself holds: ranges that don't overlap, prices that don't change
once usage was priced with them, and the months whose usage changed after their invoice was issued.

Triggers note those months, whoever writes usage: rows that a recount removes leave no other trace. `_issue` locks the usage table
against writers, so a change is either on the invoice or noted.

Ranges are held by triggers, as an exclusion constraint on (plan, range) would need the extension btree_gist, which not every
server has. The parent row is locked first: of two writers at once the second sees what the first wrote.
"""

from django.db import migrations

STAGING = """
create unlogged table billing_usage_staging (
    run_id uuid,
    tenant_id uuid,
    cluster_id uuid,
    hour timestamptz,
    direction text,
    topic text,
    consumer_group text default '',
    credential text default '',
    kind text default '',
    messages bigint,
    bytes bigint,
    units bigint,
    billed_units numeric(20, 4),
    price_id uuid,
    amount numeric(28, 10)
);
create index billing_usage_staging_run on billing_usage_staging (run_id);
"""

OVERLAPS = """
create function billing_price_no_overlap() returns trigger language plpgsql as $$
begin
    perform 1 from billing_plan where id = new.plan_id for update;
    if exists (
        select from billing_price other
        where other.plan_id = new.plan_id and other.id <> new.id
          and tstzrange(other.valid_from, other.valid_to) && tstzrange(new.valid_from, new.valid_to)
    ) then
        raise exclusion_violation using message = 'prices of a plan must not overlap', constraint = 'price_no_overlap';
    end if;
    return new;
end $$;
create trigger billing_price_no_overlap before insert or update on billing_price
    for each row execute function billing_price_no_overlap();

create function billing_subscription_no_overlap() returns trigger language plpgsql as $$
begin
    perform 1 from tenants_tenant where id = new.tenant_id for update;
    if exists (
        select from billing_subscription other
        where other.tenant_id = new.tenant_id and other.id <> new.id
          and tstzrange(other.valid_from, other.valid_to) && tstzrange(new.valid_from, new.valid_to)
    ) then
        raise exclusion_violation
            using message = 'subscriptions of a tenant must not overlap', constraint = 'subscription_no_overlap';
    end if;
    return new;
end $$;
create trigger billing_subscription_no_overlap before insert or update on billing_subscription
    for each row execute function billing_subscription_no_overlap();
"""

USED_PRICES = """
create function billing_price_used_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if exists (select from billing_usage where price_id = old.id) then
            raise restrict_violation using message = 'usage was priced with this price', constraint = 'price_used';
        end if;
        return old;
    end if;
    if (new.plan_id, new.valid_from, new.currency, new.per_million_units, new.per_million_units_out,
        new.per_gib_month_stored, new.multipliers)
       is distinct from
       (old.plan_id, old.valid_from, old.currency, old.per_million_units, old.per_million_units_out,
        old.per_gib_month_stored, old.multipliers)
       and exists (select from billing_usage where price_id = old.id)
       or new.valid_to is not null
       and exists (select from billing_usage where price_id = old.id and hour >= new.valid_to)
    then
        raise restrict_violation using message = 'usage was priced with this price', constraint = 'price_used';
    end if;
    return new;
end $$;
create trigger billing_price_used_stays before update or delete on billing_price
    for each row execute function billing_price_used_stays();
"""

ISSUED_INVOICES = """
create function billing_invoice_stays() returns trigger language plpgsql as $$
begin
    raise restrict_violation using message = 'an issued invoice is never changed', constraint = 'invoice_frozen';
end $$;
create trigger billing_invoice_stays before update on billing_invoice
    for each row execute function billing_invoice_stays();
create trigger billing_invoice_line_stays before update on billing_invoiceline
    for each row execute function billing_invoice_stays();
"""

CHANGES = """
create function billing_usage_note_changes() returns trigger language plpgsql as $$
begin
    insert into billing_changedmonth (tenant_id, month, changed_at)
    select touched.tenant_id, touched.month, clock_timestamp()
    from (select distinct tenant_id, date_trunc('month', hour at time zone 'UTC')::date as month from changed) touched
    where exists (
        select from billing_invoice invoice where invoice.tenant_id = touched.tenant_id and invoice.month = touched.month
    )
    order by touched.tenant_id, touched.month
    on conflict (tenant_id, month) do update set changed_at = excluded.changed_at;
    return null;
end $$;
create trigger billing_usage_note_inserted after insert on billing_usage
    referencing new table as changed for each statement execute function billing_usage_note_changes();
create trigger billing_usage_note_updated after update on billing_usage
    referencing new table as changed for each statement execute function billing_usage_note_changes();
create trigger billing_usage_note_deleted after delete on billing_usage
    referencing old table as changed for each statement execute function billing_usage_note_changes();
"""

SERIES = "insert into billing_invoiceseries (id, next_number) values (1, 1)"


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_tables")]

    operations = [
        migrations.RunSQL(STAGING, "drop table billing_usage_staging"),
        migrations.RunSQL(
            OVERLAPS,
            "drop function billing_price_no_overlap() cascade; drop function billing_subscription_no_overlap() cascade",
        ),
        migrations.RunSQL(USED_PRICES, "drop function billing_price_used_stays() cascade"),
        migrations.RunSQL(ISSUED_INVOICES, "drop function billing_invoice_stays() cascade"),
        migrations.RunSQL(CHANGES, "drop function billing_usage_note_changes() cascade"),
        migrations.RunSQL(SERIES, "delete from billing_invoiceseries"),
    ]
