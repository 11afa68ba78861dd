"""Plans, prices and subscriptions; usage, forecasts and budgets; invoices. Usage itself is counted by Spark."""
